"""An ordinary Flower app whose clients regulate their update."""
