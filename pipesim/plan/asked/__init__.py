"""What is asked, as data: spaces, axes and conditions, and the groups of points that they stand for."""
