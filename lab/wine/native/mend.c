/*
 * Corrections for wrong answers of Wine that Go programs rely on. They are part of bcryptprimitives.dll, because every
 * Go program loads this DLL at its start, before it does anything else.
 *
 * On a Windows server, everything that no user started at the console runs in session 0: services, and commands over
 * SSH. Wine reports session 1 for every process. Therefore, Go programs that check the session of their parent, such
 * as containerd, don't detect that they are services. This file replaces NtQuerySystemInformation, and corrects the
 * session in its list of processes. If the function's code is not the expected code, this file changes nothing.
 *
 * On Windows, a pipe end that is created with neither the right to read nor the right to write is disconnected: no
 * client is connected to it. Go programs keep such an end to reserve the name of their pipe. Wine 8 connects the first
 * client to it, and this client gets no answer. Therefore, NtCreateNamedPipeFile is replaced as well.
 *
 * Go removes directory trees with a function of Windows 10. If the system doesn't know this function, Go uses an older
 * one. Wine 8 answers "not implemented", where an older Windows answers "invalid class". Without a correction, Go
 * doesn't use the older function, and containerd removes nothing. The replaced NtSetInformationFile gives the
 * answer of Windows.
 *
 * The corrections for sockets, links, services and rights are in socket.c, link.c, service.c and security.c.
 *
 * Services find the data of all users in C:\ProgramData. Without the correction, Wine directs them to C:\users\Public.
 */
#include <string.h>
#include "mend.h"

typedef NTSTATUS(NTAPI *query_function)(ULONG class, void *buffer, ULONG length, ULONG *needed);
typedef NTSTATUS(NTAPI *create_function)(HANDLE *pipe, ULONG access, OBJECT_ATTRIBUTES *name, IO_STATUS_BLOCK *status, ULONG sharing, ULONG disposition,
                                         ULONG options, ULONG type, ULONG mode, ULONG completion, ULONG most, ULONG in, ULONG out, LARGE_INTEGER *timeout);

typedef NTSTATUS(NTAPI *set_function)(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class);

/* The size of such a function in bytes. Its code contains no relative address outside of itself. */
#define STUB 32
static query_function original_query;
static create_function original_create;
static set_function original_set;

/* The beginning of SYSTEM_PROCESS_INFORMATION, up to the session. */
struct process {
    ULONG next;
    char rest[0x60];
    ULONG session;
};

static NTSTATUS NTAPI query(ULONG class, void *buffer, ULONG length, ULONG *needed)
{
    const ULONG processes = 5; /* SystemProcessInformation */
    NTSTATUS status = original_query(class, buffer, length, needed);
    char *at = buffer;
    if (class != processes || status != 0 || buffer == NULL)
        return status;
    for (;;) {
        struct process *p = (struct process *)at;
        p->session = 0;
        if (p->next == 0)
            return status;
        at += p->next;
    }
}

/* Only an end with a client can be disconnected. Therefore, create connects a client to the end first, unless
 * another client is already connected. */
static NTSTATUS NTAPI create(HANDLE *pipe, ULONG access, OBJECT_ATTRIBUTES *name, IO_STATUS_BLOCK *status, ULONG sharing, ULONG disposition, ULONG options,
                             ULONG type, ULONG mode, ULONG completion, ULONG most, ULONG in, ULONG out, LARGE_INTEGER *timeout)
{
    NTSTATUS result = original_create(pipe, access, name, status, sharing, disposition, options, type, mode, completion, most, in, out, timeout);
    IO_STATUS_BLOCK opened;
    HANDLE client;
    if (result != 0 || (access & (GENERIC_ALL | GENERIC_READ | GENERIC_WRITE | FILE_READ_DATA | FILE_WRITE_DATA)) != 0)
        return result;
    if (NtOpenFile(&client, SYNCHRONIZE, name, &opened, FILE_SHARE_READ | FILE_SHARE_WRITE, 0) != 0)
        client = NULL;
    DisconnectNamedPipe(*pipe);
    if (client != NULL)
        NtClose(client);
    return result;
}

static NTSTATUS NTAPI set(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class)
{
    const ULONG disposition = 64; /* FileDispositionInformationEx */
    const NTSTATUS not_implemented = (NTSTATUS)0xC0000002, invalid_info_class = (NTSTATUS)0xC0000003;
    NTSTATUS result = original_set(file, status, buffer, length, class);
    return class == disposition && result == not_implemented ? invalid_info_class : result;
}

/* Redirects a function of ntdll to another function, and returns a copy of the original. If the function's code is
 * not the expected code, replace changes nothing. */
void replace(const char *name, void *by, void **original)
{
    static const unsigned char begin[] = { 0x4c, 0x8b, 0xd1, 0xb8 }; /* mov r10, rcx; mov eax, number */
    unsigned char jump[12] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 }; /* mov rax, by; jmp rax */
    unsigned char *function = (unsigned char *)GetProcAddress(GetModuleHandleA("ntdll.dll"), name);
    unsigned char *copy;
    DWORD before;
    if (function == NULL || memcmp(function, begin, sizeof begin) != 0)
        return;
    copy = VirtualAlloc(NULL, STUB, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE);
    if (copy == NULL)
        return;
    memcpy(copy, function, STUB);
    memcpy(jump + 2, &by, sizeof by);
    if (!VirtualProtect(function, sizeof jump, PAGE_EXECUTE_READWRITE, &before))
        return;
    *original = copy; /* set it first, because other threads may call the function at any time */
    memcpy(function, jump, sizeof jump);
    VirtualProtect(function, sizeof jump, before, &before);
}

static FARPROC WINAPI look_up(HMODULE module, const char *name)
{
    const struct substitute *lists[] = { socket_substitutes, link_substitutes, service_substitutes, security_substitutes };
    FARPROC found = GetProcAddress(module, name);
    size_t i;
    if (found == NULL || (ULONG_PTR)name <= 0xffff) /* the argument is a number instead of a name */
        return found;
    for (i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct substitute *s;
        for (s = lists[i]; s->name != NULL; s++) {
            if (strcmp(s->name, name) == 0) {
                *s->original = (void *)found;
                return (FARPROC)s->by;
            }
        }
    }
    return found;
}

/* Go programs look up nearly all functions of Windows by name with GetProcAddress. This function replaces
 * GetProcAddress in the program's import table, so that the program gets the functions of these files. */
static void mend_look_up(void)
{
    char *base = (char *)GetModuleHandleA(NULL);
    IMAGE_NT_HEADERS *headers = (IMAGE_NT_HEADERS *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_DATA_DIRECTORY imports = headers->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT];
    IMAGE_IMPORT_DESCRIPTOR *from;
    if (imports.VirtualAddress == 0)
        return;
    for (from = (IMAGE_IMPORT_DESCRIPTOR *)(base + imports.VirtualAddress); from->FirstThunk != 0; from++) {
        void **entry;
        for (entry = (void **)(base + from->FirstThunk); *entry != NULL; entry++) {
            DWORD before;
            if (*entry != (void *)GetProcAddress || !VirtualProtect(entry, sizeof *entry, PAGE_READWRITE, &before))
                continue;
            *entry = (void *)look_up;
            VirtualProtect(entry, sizeof *entry, before, &before);
        }
    }
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD why, void *reserved)
{
    (void)reserved;
    if (why == DLL_PROCESS_ATTACH) {
        DisableThreadLibraryCalls(self);
        replace("NtQuerySystemInformation", (void *)query, (void **)&original_query);
        replace("NtCreateNamedPipeFile", (void *)create, (void **)&original_create);
        replace("NtSetInformationFile", (void *)set, (void **)&original_set);
        mend_links();
        mend_look_up();
        SetEnvironmentVariableA("ProgramData", "C:\\ProgramData");
        SetEnvironmentVariableA("ALLUSERSPROFILE", "C:\\ProgramData");
    }
    return TRUE;
}
