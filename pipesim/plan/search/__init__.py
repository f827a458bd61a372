"""The best layouts: what is searched and how, refined, and how sure their order is."""
