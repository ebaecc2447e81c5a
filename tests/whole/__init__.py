"""The whole queue under random verbs and options at once: a model, a machine, and which pairs of features have met."""
