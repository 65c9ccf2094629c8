"""Settings of all steps: presets, their sections, options of commands."""
