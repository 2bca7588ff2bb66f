// What the host's libstdc++ takes from a glibc newer than the one that a wheel is linked against.

// Whether a process has one thread, so that reference counts need not be atomic: never assumed.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
