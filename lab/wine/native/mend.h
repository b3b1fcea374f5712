/* Declarations for all parts of bcryptprimitives.dll. */
#include <winsock2.h>
#include <windows.h>
#include <winternl.h>

/* Redirects a function of ntdll, which must consist of a system call only, to another function, and returns a copy
 * of the original. */
void replace(const char *name, void *by, void **original);

/* A function that Go programs look up by name, and the function that they get instead. original is set at the
 * lookup. */
struct substitute {
    const char *name;
    void *by;
    void **original;
};

/* The lists of socket.c, link.c, service.c and security.c. An empty element ends each list. */
extern const struct substitute socket_substitutes[], link_substitutes[], service_substitutes[], security_substitutes[];

/* mend_links makes programs see the links of link.c as links, and files with this mark as sockets. */
#define MARK_SOCKET FILE_ATTRIBUTE_SYSTEM
void mend_links(void);
