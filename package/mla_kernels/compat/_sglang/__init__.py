"""Classes of SGLang's attention backend; only ``backend`` imports SGLang."""
