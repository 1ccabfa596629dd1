"""What runs came to, for people: one page over several runs, and the model card of one."""
