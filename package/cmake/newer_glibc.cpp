// Defines what the host's libstdc++ takes from a glibc newer than the one that a wheel is linked
// against.

// libstdc++ makes reference counts plain where this says that the process has one thread; it never
// does.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
