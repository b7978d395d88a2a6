// A library that cannot be loaded where CALLED is not there.
int CALLED(void);
int call(void) { return CALLED(); }
