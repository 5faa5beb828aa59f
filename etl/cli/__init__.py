"""The command line: parse, one call, print. A verb imports only what it uses."""
