"""Pages: blocks, plots and amounts that reports and studies are made of."""
