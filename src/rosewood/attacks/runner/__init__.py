"""What all attacks share: questions, budgets, batches, success, and which substitutes are allowed."""
