/* Plays the CUDA driver for the tests of devices; the macros below say what it finds. */
#include <stdio.h>
#include <unistd.h>

#ifndef INIT
#define INIT 0
#endif
#ifndef VERSION
#define VERSION 13000
#endif
#ifndef DEVICES
#define DEVICES {"", 0, 0}
#endif
#ifndef COUNT
#define COUNT (int)(sizeof devices / sizeof *devices)
#endif

enum {
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kMajor = 75,
  kHandle = 40
};

static const struct {
  const char* name;
  int major, minor;
} devices[] = {DEVICES};

static _Thread_local int context = -1;
static pid_t initialised;

void fake_set_current(int ordinal) { context = ordinal; }

int cuInit(unsigned flags) {
  (void)flags;
  if (initialised != 0 && initialised != getpid()) return kNotInitialized;
  initialised = getpid();
  return INIT;
}

int cuDriverGetVersion(int* version) { return *version = VERSION, 0; }

int cuDeviceGetCount(int* count) { return *count = COUNT, 0; }

int cuDeviceGet(int* handle, int ordinal) {
  return *handle = kHandle + ordinal, ordinal < COUNT ? 0 : kInvalidDevice;
}

int cuDeviceGetName(char* name, int size, int handle) {
  return snprintf(name, (size_t)size, "%s", devices[handle - kHandle].name) < 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int handle) {
  *value = attribute == kMajor ? devices[handle - kHandle].major : devices[handle - kHandle].minor;
  return 0;
}

int cuCtxGetDevice(int* handle) {
  return *handle = kHandle + context, context < 0 ? kInvalidContext : 0;
}

#ifndef NO_ERROR_NAME
int cuGetErrorName(int status, const char** name) {
  *name = status == kNotInitialized ? "CUDA_ERROR_NOT_INITIALIZED"
          : status == 803           ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
                                    : NULL;
  return *name == NULL;
}
#endif
