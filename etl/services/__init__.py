"""What keeps running: programs that tend other processes. rq and redis stay behind `queues`."""
