"""Where a file lies and how it moves: layout, names, notes, claims, outboxes. The only status moves."""
