"""What defences share: copies of a text changed at random, certificates, and how a model is wrapped."""
