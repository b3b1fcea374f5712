/*
 * Symbolic links. Wine 8 reports that it has created a link, but creates none. This file creates a copy of the target
 * that has the attributes of a link. This is enough for programs that replace links to files that no longer change,
 * such as kubelet with its current certificate. The target of such a link can't be read. Links to anything other than
 * a file are refused.
 *
 * The attributes distinguish the objects: a link is a hidden system file, and the file of a socket is a system file
 * that is not hidden. No other file on a host has these attributes. Go programs see a link as a link and a socket as a
 * socket, with each function that they use.
 */
#include "mend.h"

#define MARK_LINK (FILE_ATTRIBUTE_HIDDEN | FILE_ATTRIBUTE_SYSTEM)
#define TAG_UNIX 0x80000023 /* IO_REPARSE_TAG_AF_UNIX */

typedef NTSTATUS(NTAPI *information_function)(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class);
typedef NTSTATUS(NTAPI *attributes_function)(const OBJECT_ATTRIBUTES *name, void *buffer);

static information_function original_information;
static attributes_function original_attributes;

/* Returns the attributes that programs see. For a link or a socket, they differ from the real attributes. */
static ULONG shown(ULONG attributes)
{
    if ((attributes & MARK_SOCKET) == 0 || (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
        return attributes;
    return (attributes & ~MARK_LINK) | FILE_ATTRIBUTE_REPARSE_POINT;
}

/* FILE_BASIC_INFORMATION. FILE_ALL_INFORMATION begins with it. */
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
    const NTSTATUS overflow = (NTSTATUS)0x80000005; /* only the name did not fit */
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
