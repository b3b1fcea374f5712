/*
 * What Wine tells its processes wrongly, and Go programs then act on. Every Go program loads bcryptprimitives.dll when it starts, before it looks at
 * anything else, so this goes into it.
 *
 * On a Windows server everything that nobody started at its console runs in session 0: services, and what comes in over SSH. Wine says session 1 of every
 * process, and Go programs that look at the session of their parent, such as containerd, then do not know that they are services. So
 * NtQuerySystemInformation is replaced, and the session in its list of processes corrected. Where the function does not look as expected nothing is changed.
 *
 * Services find the data of all users in C:\ProgramData, where Wine sends them to C:\users\Public.
 */
#include <string.h>
#include <windows.h>

typedef LONG(NTAPI *query_function)(ULONG class, void *buffer, ULONG length, ULONG *needed);

/* The whole function: 32 bytes that hold no relative address leading out of them. */
#define STUB 32
static query_function original;

/* The head of SYSTEM_PROCESS_INFORMATION, as far as it matters. */
struct process {
    ULONG next;
    char rest[0x60];
    ULONG session;
};

static LONG NTAPI query(ULONG class, void *buffer, ULONG length, ULONG *needed)
{
    const ULONG processes = 5; /* SystemProcessInformation */
    LONG status = original(class, buffer, length, needed);
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

static void replace(void)
{
    static const unsigned char begin[] = { 0x4c, 0x8b, 0xd1, 0xb8 }; /* mov r10, rcx; mov eax, number */
    unsigned char jump[12] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 }; /* mov rax, query; jmp rax */
    void *to = (void *)query;
    unsigned char *function = (unsigned char *)GetProcAddress(GetModuleHandleA("ntdll.dll"), "NtQuerySystemInformation");
    unsigned char *copy;
    DWORD before;
    if (function == NULL || memcmp(function, begin, sizeof begin) != 0)
        return;
    copy = VirtualAlloc(NULL, STUB, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE);
    if (copy == NULL)
        return;
    memcpy(copy, function, STUB);
    memcpy(jump + 2, &to, sizeof to);
    if (!VirtualProtect(function, sizeof jump, PAGE_EXECUTE_READWRITE, &before))
        return;
    original = (query_function)copy;
    memcpy(function, jump, sizeof jump);
    VirtualProtect(function, sizeof jump, before, &before);
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD why, void *reserved)
{
    (void)reserved;
    if (why == DLL_PROCESS_ATTACH) {
        DisableThreadLibraryCalls(self);
        replace();
        SetEnvironmentVariableA("ProgramData", "C:\\ProgramData");
        SetEnvironmentVariableA("ALLUSERSPROFILE", "C:\\ProgramData");
    }
    return TRUE;
}
