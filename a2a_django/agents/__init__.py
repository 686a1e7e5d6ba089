"""What an agent is and how it runs: registry, card, runner, dispatch."""
