"""Where files are: on local disks, in object stores, and wherever a plug-in reaches."""
