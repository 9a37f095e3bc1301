"""What several algorithms share and no paper is."""
