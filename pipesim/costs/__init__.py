"""What computing, communicating and holding cost: plain formulas that take floats and numpy arrays alike."""
