"""For people who label their own data: a first model, what to label next, and labels that look wrong."""
