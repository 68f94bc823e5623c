"""V-trace with replays of unrolls beside its queue: standard, elite, elite insertion, attentive."""
