"""How work is announced: keys, connection, embedded server, jobs, workers. The only door to rq and redis."""
