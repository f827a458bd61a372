"""pipesim: how long a training step takes and what each GPU holds, for every way to cut a large model over many GPUs."""
