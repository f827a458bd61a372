"""To the cluster and back: layouts as arguments of the training frameworks, and their arguments as layouts."""
