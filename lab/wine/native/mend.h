/* What the parts of bcryptprimitives.dll share. */
#include <winsock2.h>
#include <windows.h>
#include <winternl.h>

/* Has a function of ntdll that is nothing but a system call go through another one, and gives a copy that works as before. */
void replace(const char *name, void *by, void **original);

/* A function that Go programs look up by its name, and what they get in its place. original is set before that. */
struct substitute {
    const char *name;
    void *by;
    void **original;
};

/* socket.c, link.c, service.c and security.c have some, each with an empty one at the end. */
extern const struct substitute socket_substitutes[], link_substitutes[], service_substitutes[], security_substitutes[];

/* mend_links shows what link.c made, and files with this mark as those of sockets. */
#define MARK_SOCKET FILE_ATTRIBUTE_SYSTEM
void mend_links(void);
