"""The systems that Table 1 compares with, each as gates or layers of its own."""
