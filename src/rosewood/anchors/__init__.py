"""What ties the model to its pre-trained self, one file each."""
