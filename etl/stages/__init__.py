"""What is done to one file, stage by stage."""
