"""Regular expressions in linear time: parsed here, matched by automata, never by backtracking."""
