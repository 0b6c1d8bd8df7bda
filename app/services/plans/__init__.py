"""Session plans: tasks that are begun one after another or side by side, each as a run of its own."""
