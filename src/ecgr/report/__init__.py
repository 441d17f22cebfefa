"""The ways to show an answer: the terminal's table, the page, the figures. No torch."""
