"""What happened: the SQL history of every file, attempt, verdict and service. Memory only: the folders win."""
