module firesteel.test/pause

go 1.21
