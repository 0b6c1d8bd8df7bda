"""Session plans: tasks that start one after another or at the same time, each as a run of its own."""
