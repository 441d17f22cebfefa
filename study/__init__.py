"""The study: what its pages and figures are made with, from a checkout."""
