"""What candidates say in the end, when two of them say the same, and what their votes and confidences come to."""
