/*
 * Sockets of the family AF_UNIX, which Wine 8 lacks, for programs that listen on a path or connect to a path. Such a
 * program gets a TCP socket on 127.0.0.1. The file at the path contains the port, and has the attributes of a socket:
 * see link.c. Go programs look up the socket functions by name, and get these functions.
 *
 * Accepted and connected sockets have no path, because no program needs it. The rights of the file are not checked.
 */
#include <stdio.h>
#include "mend.h"

struct unix_address {
    USHORT family;
    char path[108];
};

/* Listening sockets with their paths. The number is enough for the programs on a host. */
#define MOST 32
static struct {
    SOCKET socket;
    USHORT port;
    struct unix_address address;
} known[MOST];
static SRWLOCK guard = SRWLOCK_INIT;

static SOCKET(WSAAPI *original_make)(int, int, int, WSAPROTOCOL_INFOW *, GROUP, DWORD);
static int(WSAAPI *original_bind)(SOCKET, const struct sockaddr *, int);
static int(WSAAPI *original_connect)(SOCKET, const struct sockaddr *, int);
static int(WSAAPI *original_name)(SOCKET, struct sockaddr *, int *);

static SOCKET WSAAPI make(int family, int type, int protocol, WSAPROTOCOL_INFOW *info, GROUP group, DWORD flags)
{
    return original_make(family == AF_UNIX ? AF_INET : family, type, protocol, info, group, flags);
}

static int fail(int error)
{
    SetLastError(error);
    return SOCKET_ERROR;
}

/* Opens the file of an address. A new file gets the attributes of a socket. */
static HANDLE open_file(const struct sockaddr *address, int length, DWORD access, DWORD disposition)
{
    struct unix_address at = { 0 };
    WCHAR path[sizeof at.path];
    HANDLE file;
    memcpy(&at, address, length < (int)sizeof at - 1 ? length : (int)sizeof at - 1);
    if (!MultiByteToWideChar(CP_UTF8, 0, at.path, -1, path, sizeof path / sizeof *path))
        return INVALID_HANDLE_VALUE;
    file = CreateFileW(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, disposition, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file != INVALID_HANDLE_VALUE && disposition == CREATE_NEW)
        SetFileAttributesW(path, MARK_SOCKET);
    return file;
}

static struct sockaddr_in loopback(USHORT port)
{
    struct sockaddr_in in = { 0 };
    in.sin_family = AF_INET;
    in.sin_addr.S_un.S_addr = 0x0100007f; /* 127.0.0.1 */
    in.sin_port = port;
    return in;
}

static void remember(SOCKET socket, USHORT port, const struct sockaddr *address, int length)
{
    int at = 0;
    AcquireSRWLockExclusive(&guard);
    while (at < MOST - 1 && known[at].port != 0 && known[at].socket != socket)
        at++;
    memset(&known[at], 0, sizeof known[at]);
    known[at].socket = socket;
    known[at].port = port;
    memcpy(&known[at].address, address, length < (int)sizeof known[at].address - 1 ? length : (int)sizeof known[at].address - 1);
    ReleaseSRWLockExclusive(&guard);
}

static int WSAAPI bind_any(SOCKET socket, const struct sockaddr *address, int length)
{
    struct sockaddr_in in = loopback(0);
    int size = sizeof in;
    HANDLE file;
    DWORD written;
    BOOL ok;
    if (address == NULL || length < (int)sizeof address->sa_family || address->sa_family != AF_UNIX)
        return original_bind(socket, address, length);
    if (original_name == NULL) /* the program has not looked it up yet */
        original_name = (void *)GetProcAddress(GetModuleHandleA("ws2_32.dll"), "getsockname");
    if (original_bind(socket, (struct sockaddr *)&in, sizeof in) != 0 || original_name(socket, (struct sockaddr *)&in, &size) != 0)
        return SOCKET_ERROR;
    file = open_file(address, length, GENERIC_WRITE, CREATE_NEW);
    if (file == INVALID_HANDLE_VALUE)
        return fail(GetLastError() == ERROR_FILE_EXISTS ? WSAEADDRINUSE : WSAEACCES);
    ok = WriteFile(file, &in.sin_port, sizeof in.sin_port, &written, NULL);
    CloseHandle(file);
    if (!ok)
        return fail(WSAEACCES);
    remember(socket, in.sin_port, address, length);
    return 0;
}

static int WSAAPI connect_any(SOCKET socket, const struct sockaddr *address, int length)
{
    struct sockaddr_in in;
    USHORT port = 0;
    HANDLE file;
    DWORD got = 0;
    if (address == NULL || length < (int)sizeof address->sa_family || address->sa_family != AF_UNIX)
        return original_connect(socket, address, length);
    file = open_file(address, length, GENERIC_READ, OPEN_EXISTING);
    if (file == INVALID_HANDLE_VALUE)
        return fail(WSAECONNREFUSED);
    if (!ReadFile(file, &port, sizeof port, &got, NULL) || got != sizeof port)
        port = 0;
    CloseHandle(file);
    if (port == 0)
        return fail(WSAECONNREFUSED);
    in = loopback(port);
    return original_connect(socket, (struct sockaddr *)&in, sizeof in);
}

/* The port is compared as well, because the handle may have been closed and used again for another socket. */
static int WSAAPI name_any(SOCKET socket, struct sockaddr *address, int *length)
{
    int room = *length, result = original_name(socket, address, length), at;
    if (result != 0 || address->sa_family != AF_INET || room < (int)sizeof(struct unix_address))
        return result;
    AcquireSRWLockShared(&guard);
    for (at = 0; at < MOST; at++) {
        if (known[at].port != 0 && known[at].socket == socket && known[at].port == ((struct sockaddr_in *)address)->sin_port) {
            memcpy(address, &known[at].address, sizeof known[at].address);
            *length = sizeof known[at].address;
            break;
        }
    }
    ReleaseSRWLockShared(&guard);
    return result;
}

const struct substitute socket_substitutes[] = {
    { "WSASocketW", (void *)make, (void **)&original_make },
    { "bind", (void *)bind_any, (void **)&original_bind },
    { "connect", (void *)connect_any, (void **)&original_connect },
    { "getsockname", (void *)name_any, (void **)&original_name },
    { NULL, NULL, NULL },
};
