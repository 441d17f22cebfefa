"""What several tests need to set a scene."""
