"""Keys, processes and files of a federation on one machine or several."""
