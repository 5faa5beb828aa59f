"""Where data goes: one contract (`location`), and the kinds of location that keep it."""
