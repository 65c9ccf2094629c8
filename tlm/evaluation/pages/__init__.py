"""Pages: blocks and plots that reports and studies are made of."""
