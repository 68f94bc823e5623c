"""What a run reports: ages, lateness, journeys of actions, and pictures of them."""
