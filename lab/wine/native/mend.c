/*
 * What Wine tells its processes wrongly, and Go programs then act on. Every Go program loads bcryptprimitives.dll when it starts, before it looks at
 * anything else, so this goes into it.
 *
 * On a Windows server everything that nobody started at its console runs in session 0: services, and what comes in over SSH. Wine says session 1 of every
 * process, and Go programs that look at the session of their parent, such as containerd, then do not know that they are services. So
 * NtQuerySystemInformation is replaced, and the session in its list of processes corrected. Where the function does not look as expected nothing is changed.
 *
 * A pipe end that is made with neither the right to read nor to write is disconnected on Windows: no client gets it. Go programs keep such an end to own the
 * name of their pipe. Wine 8 hands it to the first client, which then speaks to nobody. So NtCreateNamedPipeFile is replaced, too.
 *
 * Go removes trees in a way of Windows 10, and in an older one where the system does not know that. Wine 8 says that it has yet to write it, where Windows
 * says that it has never heard of it, so containerd, which removes what it no longer needs in that way, kept all of it. So NtSetInformationFile says what
 * Windows says.
 *
 * What Wine lacks of sockets, links, services and rights is in socket.c, link.c, service.c and security.c.
 *
 * Services find the data of all users in C:\ProgramData, where Wine sends them to C:\users\Public.
 */
#include <string.h>
#include "mend.h"

typedef NTSTATUS(NTAPI *query_function)(ULONG class, void *buffer, ULONG length, ULONG *needed);
typedef NTSTATUS(NTAPI *create_function)(HANDLE *pipe, ULONG access, OBJECT_ATTRIBUTES *name, IO_STATUS_BLOCK *status, ULONG sharing, ULONG disposition,
                                         ULONG options, ULONG type, ULONG mode, ULONG completion, ULONG most, ULONG in, ULONG out, LARGE_INTEGER *timeout);

typedef NTSTATUS(NTAPI *set_function)(HANDLE file, IO_STATUS_BLOCK *status, void *buffer, ULONG length, ULONG class);

/* The whole of such a function: 32 bytes that hold no relative address leading out of them. */
#define STUB 32
static query_function original_query;
static create_function original_create;
static set_function original_set;

/* The head of SYSTEM_PROCESS_INFORMATION, as far as it matters. */
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

/* A client of our own takes the end, or somebody else was quicker; an end with a client can be disconnected. */
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

/* Has a function of ntdll call another, and gives a copy that works as before. One that does not look as expected stays. */
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
    *original = copy; /* first: other threads may be calling it */
    memcpy(function, jump, sizeof jump);
    VirtualProtect(function, sizeof jump, before, &before);
}

static FARPROC WINAPI look_up(HMODULE module, const char *name)
{
    const struct substitute *lists[] = { socket_substitutes, link_substitutes, service_substitutes, security_substitutes };
    FARPROC found = GetProcAddress(module, name);
    size_t i;
    if (found == NULL || (ULONG_PTR)name <= 0xffff) /* a number, not a name */
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

/* Go programs look up nearly all functions of Windows by name: this has them get ours. The program has its own table of what it imports, GetProcAddress
 * among it. */
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
