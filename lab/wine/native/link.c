/*
 * Symbolic links, of which Wine 8 says that it made them, and makes none. Here a link to a file is a copy of that file, which says of itself that it is a
 * link: enough for who replaces links to files that nobody writes any more, such as kubelet, whose certificate in use is one. It can't be read where it
 * leads to. Links to anything else are refused.
 *
 * A copy is told from a file by being hidden and the system's, and a socket's file by being the system's and not hidden, which nothing else is here. Both
 * say of themselves what they are under that disguise, in all ways in which Go programs ask.
 */
#include "mend.h"

#define MARK_LINK (FILE_ATTRIBUTE_HIDDEN | FILE_ATTRIBUTE_SYSTEM)
#define TAG_UNIX 0x80000023 /* IO_REPARSE_TAG_AF_UNIX */

typedef NTSTATUS(NTAPI *information_function)(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class);
typedef NTSTATUS(NTAPI *attributes_function)(const OBJECT_ATTRIBUTES *name, void *buffer);

static information_function original_information;
static attributes_function original_attributes;

/* The attributes of a link or a socket, when these are those of one. */
static ULONG shown(ULONG attributes)
{
    if ((attributes & MARK_SOCKET) == 0 || (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
        return attributes;
    return (attributes & ~MARK_LINK) | FILE_ATTRIBUTE_REPARSE_POINT;
}

/* FILE_BASIC_INFORMATION, with which FILE_ALL_INFORMATION begins. */
struct basic {
    LARGE_INTEGER times[4];
    ULONG attributes;
};

struct network_open {
    LARGE_INTEGER times[4], sizes[2];
    ULONG attributes;
};

struct attribute_tag {
    ULONG attributes, tag;
};

static NTSTATUS NTAPI information(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class)
{
    const ULONG basic = 4, all = 18, open = 34, tag = 35;
    const NTSTATUS overflow = (NTSTATUS)0x80000005; /* the name did not fit, the rest did */
    NTSTATUS result = original_information(file, status, buffer, length, class);
    if (result != 0 && result != overflow)
        return result;
    if (class == basic || class == all) {
        struct basic *b = buffer;
        b->attributes = shown(b->attributes);
    } else if (class == open) {
        struct network_open *n = buffer;
        n->attributes = shown(n->attributes);
    } else if (class == tag) {
        struct attribute_tag *t = buffer;
        if (shown(t->attributes) != t->attributes)
            t->tag = (t->attributes & MARK_LINK) == MARK_LINK ? IO_REPARSE_TAG_SYMLINK : TAG_UNIX;
        t->attributes = shown(t->attributes);
    }
    return result;
}

static NTSTATUS NTAPI attributes(const OBJECT_ATTRIBUTES *name, void *buffer)
{
    NTSTATUS result = original_attributes(name, buffer);
    struct network_open *n = buffer;
    if (result == 0)
        n->attributes = shown(n->attributes);
    return result;
}

static BOOLEAN(WINAPI *original_link)(const WCHAR *, const WCHAR *, DWORD);

static BOOLEAN WINAPI make(const WCHAR *name, const WCHAR *target, DWORD flags)
{
    if ((flags & SYMBOLIC_LINK_FLAG_DIRECTORY) != 0 || target[0] == 0 || target[1] != ':') {
        SetLastError(ERROR_PRIVILEGE_NOT_HELD);
        return FALSE;
    }
    return CopyFileW(target, name, TRUE) && SetFileAttributesW(name, MARK_LINK);
}

void mend_links(void)
{
    replace("NtQueryInformationFile", (void *)information, (void **)&original_information);
    replace("NtQueryFullAttributesFile", (void *)attributes, (void **)&original_attributes);
}

const struct substitute link_substitutes[] = {
    { "CreateSymbolicLinkW", (void *)make, (void **)&original_link },
    { NULL, NULL, NULL },
};
