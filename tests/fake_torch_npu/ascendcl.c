int aclInit(void) { return 0; }
