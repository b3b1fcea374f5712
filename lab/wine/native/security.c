/*
 * Corrections for rights and certificates, which Wine 8 handles differently.
 *
 * Wine stores the rights of a file as Linux rights. If a file belongs to the group Administrators, Wine later reports
 * the account that runs Wine as its owner. This file reports the group instead of this account. Wine ignores a change
 * of rights by name, but accepts a change through a handle.
 *
 * Windows writes a change of a certificate store at once. Wine writes it only on request. This file requests it when
 * the store is closed.
 */
#include "mend.h"
#include <aclapi.h>
#include <sddl.h>
#include <wchar.h>
#include <wincrypt.h>

static DWORD(WINAPI *original_set)(WCHAR *, SE_OBJECT_TYPE, SECURITY_INFORMATION, SID *, SID *, ACL *, ACL *);
static DWORD(WINAPI *original_by_name)(const WCHAR *, SE_OBJECT_TYPE, SECURITY_INFORMATION, SID **, SID **, ACL **, ACL **, SECURITY_DESCRIPTOR **);
static DWORD(WINAPI *original_by_handle)(HANDLE, SE_OBJECT_TYPE, SECURITY_INFORMATION, SID **, SID **, ACL **, ACL **, SECURITY_DESCRIPTOR **);
static BOOL(WINAPI *original_close)(HCERTSTORE, DWORD);

static DWORD WINAPI set_by_name(WCHAR *name, SE_OBJECT_TYPE type, SECURITY_INFORMATION parts, SID *owner, SID *group, ACL *dacl, ACL *sacl)
{
    DWORD error = original_set(name, type, parts, owner, group, dacl, sacl);
    const SECURITY_INFORMATION kept = parts & (OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION);
    SECURITY_DESCRIPTOR descriptor;
    HANDLE file;
    if (error != 0 || type != SE_FILE_OBJECT || kept == 0)
        return error;
    file = CreateFileW(name, WRITE_DAC | WRITE_OWNER, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS,
        NULL);
    if (file == INVALID_HANDLE_VALUE)
        return GetLastError();
    InitializeSecurityDescriptor(&descriptor, SECURITY_DESCRIPTOR_REVISION);
    SetSecurityDescriptorOwner(&descriptor, owner, FALSE);
    SetSecurityDescriptorDacl(&descriptor, TRUE, dacl, FALSE);
    if (parts & PROTECTED_DACL_SECURITY_INFORMATION)
        SetSecurityDescriptorControl(&descriptor, SE_DACL_PROTECTED, SE_DACL_PROTECTED);
    error = SetKernelObjectSecurity(file, kept, &descriptor) ? 0 : GetLastError();
    CloseHandle(file);
    return error;
}

/* Returns the SID of the account as text. The caller frees it with LocalFree. */
static WCHAR *account(void)
{
    BYTE buffer[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    WCHAR *text = NULL;
    DWORD size;
    HANDLE token;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return NULL;
    if (GetTokenInformation(token, TokenUser, buffer, sizeof buffer, &size))
        ConvertSidToStringSidW(((TOKEN_USER *)buffer)->User.Sid, &text);
    CloseHandle(token);
    return text;
}

/* Replaces the account by the group Administrators (BA) in a descriptor that was allocated with LocalAlloc. */
static void show_group(SECURITY_INFORMATION parts, SECURITY_DESCRIPTOR **descriptor)
{
    WCHAR *text = NULL, *sid = account(), *at;
    PSECURITY_DESCRIPTOR changed;
    if (sid != NULL && ConvertSecurityDescriptorToStringSecurityDescriptorW(*descriptor, SDDL_REVISION_1, parts, &text, NULL)) {
        for (at = text; (at = wcsstr(at, sid)) != NULL;) {
            wmemcpy(at, L"BA", 2);
            memmove(at + 2, at + wcslen(sid), (wcslen(at + wcslen(sid)) + 1) * sizeof *at);
        }
        if (ConvertStringSecurityDescriptorToSecurityDescriptorW(text, SDDL_REVISION_1, &changed, NULL)) {
            LocalFree(*descriptor);
            *descriptor = changed;
        }
    }
    LocalFree(text);
    LocalFree(sid);
}

/* If the caller requests pointers into the descriptor, the descriptor stays unchanged, because the pointers would
 * point into the old one. Go programs don't request pointers. */
static DWORD WINAPI get_by_name(const WCHAR *name, SE_OBJECT_TYPE type, SECURITY_INFORMATION parts, SID **owner, SID **group, ACL **dacl, ACL **sacl,
                                SECURITY_DESCRIPTOR **descriptor)
{
    DWORD error = original_by_name(name, type, parts, owner, group, dacl, sacl, descriptor);
    if (error == 0 && type == SE_FILE_OBJECT && owner == NULL && group == NULL && dacl == NULL && sacl == NULL)
        show_group(parts, descriptor);
    return error;
}

static DWORD WINAPI get_by_handle(HANDLE handle, SE_OBJECT_TYPE type, SECURITY_INFORMATION parts, SID **owner, SID **group, ACL **dacl, ACL **sacl,
                                  SECURITY_DESCRIPTOR **descriptor)
{
    DWORD error = original_by_handle(handle, type, parts, owner, group, dacl, sacl, descriptor);
    if (error == 0 && type == SE_FILE_OBJECT && owner == NULL && group == NULL && dacl == NULL && sacl == NULL)
        show_group(parts, descriptor);
    return error;
}

static BOOL WINAPI close_store(HCERTSTORE store, DWORD flags)
{
    BOOL(WINAPI * control)(HCERTSTORE, DWORD, DWORD, const void *) = (void *)GetProcAddress(GetModuleHandleA("crypt32.dll"), "CertControlStore");
    control(store, 0, CERT_STORE_CTRL_COMMIT, NULL);
    return original_close(store, flags);
}

const struct substitute security_substitutes[] = {
    { "SetNamedSecurityInfoW", (void *)set_by_name, (void **)&original_set },
    { "GetNamedSecurityInfoW", (void *)get_by_name, (void **)&original_by_name },
    { "GetSecurityInfo", (void *)get_by_handle, (void **)&original_by_handle },
    { "CertCloseStore", (void *)close_store, (void **)&original_close },
    { NULL, NULL, NULL },
};
