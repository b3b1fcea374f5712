/*
 * computenetwork.dll and vmcompute.dll, which Wine lacks. They are the two interfaces of the host network service.
 * Both forward calls to the keeper, which simulates this service, through a pipe. A message contains the function's
 * name and its arguments as UTF-8, each terminated by a zero byte. The answer is an HRESULT and a text. Each message
 * begins with its length, because Wine's CallNamedPipe never returns.
 */
#include <stdio.h>
#include <string.h>
#include <windows.h>

#define EXPORT __declspec(dllexport)
#define PIPE L"\\\\.\\pipe\\lab-hns"
#define MOST (256 * 1024)

struct message {
    char *bytes;
    DWORD length;
};

static void add(struct message *m, const char *text, DWORD length)
{
    if (m->bytes == NULL || m->length + length + 1 > MOST) {
        m->length = MOST + 1; /* too long */
        return;
    }
    memcpy(m->bytes + m->length, text, length);
    m->length += length;
    m->bytes[m->length++] = 0;
}

static void add_wide(struct message *m, const WCHAR *text)
{
    int length = text ? WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL) - 1 : 0;
    char *narrow = length > 0 ? HeapAlloc(GetProcessHeap(), 0, length + 1) : NULL;
    if (narrow)
        WideCharToMultiByte(CP_UTF8, 0, text, -1, narrow, length + 1, NULL, NULL);
    add(m, narrow ? narrow : "", narrow ? length : 0);
    HeapFree(GetProcessHeap(), 0, narrow);
}

static void add_guid(struct message *m, const GUID *id)
{
    char text[37];
    snprintf(text, sizeof text, "%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x", id->Data1, id->Data2, id->Data3, id->Data4[0], id->Data4[1],
        id->Data4[2], id->Data4[3], id->Data4[4], id->Data4[5], id->Data4[6], id->Data4[7]);
    add(m, text, 36);
}

static struct message begin(const char *function)
{
    struct message m = { HeapAlloc(GetProcessHeap(), 0, MOST), 0 };
    add(&m, function, (DWORD)strlen(function));
    return m;
}

static BOOL transfer(HANDLE pipe, BOOL writing, void *bytes, DWORD length)
{
    char *at = bytes;
    while (length > 0) {
        DWORD done = 0;
        if (!(writing ? WriteFile(pipe, at, length, &done, NULL) : ReadFile(pipe, at, length, &done, NULL)) || done == 0)
            return FALSE;
        at += done;
        length -= done;
    }
    return TRUE;
}

/* exchange sends a message and returns the answer. The caller frees the answer. */
static BOOL exchange(struct message m, char **answer, DWORD *length)
{
    BOOL ok = FALSE;
    HANDLE pipe;
    do {
        pipe = CreateFileW(PIPE, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
    } while (pipe == INVALID_HANDLE_VALUE && GetLastError() == ERROR_PIPE_BUSY && WaitNamedPipeW(PIPE, 10000));
    if (pipe == INVALID_HANDLE_VALUE)
        return FALSE;
    if (transfer(pipe, TRUE, &m.length, sizeof m.length) && transfer(pipe, TRUE, m.bytes, m.length)
        && transfer(pipe, FALSE, length, sizeof *length) && *length <= MOST) {
        *answer = HeapAlloc(GetProcessHeap(), 0, *length + 1);
        ok = *answer != NULL && transfer(pipe, FALSE, *answer, *length);
    }
    CloseHandle(pipe);
    return ok;
}

/* finish makes the call. If the caller requests the text, and the text is not empty, the caller frees it with
 * CoTaskMemFree. */
static HRESULT finish(struct message m, WCHAR **text)
{
    HRESULT hr = E_OUTOFMEMORY;
    char *answer = NULL;
    DWORD length = 0;
    if (text)
        *text = NULL;
    if (m.bytes == NULL)
        goto out;
    if (m.length > MOST) {
        hr = E_INVALIDARG;
        goto out;
    }
    if (!exchange(m, &answer, &length) || length < sizeof hr) {
        hr = HRESULT_FROM_WIN32(ERROR_SERVICE_NOT_ACTIVE);
        goto out;
    }
    memcpy(&hr, answer, sizeof hr);
    if (text && length > sizeof hr) {
        int wide = MultiByteToWideChar(CP_UTF8, 0, answer + sizeof hr, (int)(length - sizeof hr), NULL, 0);
        WCHAR *result = CoTaskMemAlloc(((SIZE_T)wide + 1) * sizeof(WCHAR));
        if (result == NULL) {
            hr = E_OUTOFMEMORY;
            goto out;
        }
        MultiByteToWideChar(CP_UTF8, 0, answer + sizeof hr, (int)(length - sizeof hr), result, wide);
        result[wide] = 0;
        *text = result;
    }
out:
    HeapFree(GetProcessHeap(), 0, m.bytes);
    HeapFree(GetProcessHeap(), 0, answer);
    return hr;
}

EXPORT HRESULT WINAPI HNSCall(const WCHAR *method, const WCHAR *path, const WCHAR *request, WCHAR **response)
{
    struct message m = begin("HNSCall");
    add_wide(&m, method);
    add_wide(&m, path);
    add_wide(&m, request);
    return finish(m, response);
}

/* A handle is a copy of the object's identifier. */
static HRESULT open_object(const char *function, const GUID *id, void **handle)
{
    struct message m = begin(function);
    GUID *copy;
    HRESULT hr;
    add_guid(&m, id);
    hr = finish(m, NULL);
    if (FAILED(hr))
        return hr;
    copy = HeapAlloc(GetProcessHeap(), 0, sizeof *copy);
    if (copy == NULL)
        return E_OUTOFMEMORY;
    *copy = *id;
    *handle = copy;
    return S_OK;
}

/* create_object creates an object. The service answers with the identifier. After a failure, the caller owns the
 * error text. */
static HRESULT create_object(const char *function, const GUID *id, const WCHAR *settings, void **handle, WCHAR **error)
{
    struct message m = begin(function);
    WCHAR *text = NULL, braced[39];
    GUID *made;
    HRESULT hr;
    add_guid(&m, id);
    add_wide(&m, settings);
    hr = finish(m, &text);
    if (FAILED(hr)) {
        if (error)
            *error = text;
        else
            CoTaskMemFree(text);
        return hr;
    }
    made = HeapAlloc(GetProcessHeap(), 0, sizeof *made);
    if (made == NULL) {
        CoTaskMemFree(text);
        return E_OUTOFMEMORY;
    }
    _snwprintf(braced, sizeof braced / sizeof *braced, L"{%ls}", text ? text : L"");
    braced[38] = 0;
    hr = CLSIDFromString(braced, made);
    CoTaskMemFree(text);
    if (FAILED(hr)) {
        HeapFree(GetProcessHeap(), 0, made);
        return hr;
    }
    *handle = made;
    return S_OK;
}

static HRESULT modify_object(const char *function, void *handle, const WCHAR *settings, WCHAR **error)
{
    struct message m = begin(function);
    WCHAR *text = NULL;
    HRESULT hr;
    add_guid(&m, handle);
    add_wide(&m, settings);
    hr = finish(m, &text);
    if (FAILED(hr) && error)
        *error = text;
    else
        CoTaskMemFree(text);
    return hr;
}

static HRESULT query_object(const char *function, void *handle, WCHAR **properties)
{
    struct message m = begin(function);
    add_guid(&m, handle);
    return finish(m, properties);
}

static HRESULT close_object(void *handle)
{
    HeapFree(GetProcessHeap(), 0, handle);
    return S_OK;
}

static HRESULT list_objects(const char *function, const WCHAR *query, WCHAR **ids)
{
    struct message m = begin(function);
    add_wide(&m, query);
    return finish(m, ids);
}

static HRESULT delete_object(const char *function, const GUID *id)
{
    struct message m = begin(function);
    add_guid(&m, id);
    return finish(m, NULL);
}

#define OBJECT(plural, singular)                                                                                   \
    EXPORT HRESULT WINAPI HcnEnumerate##plural(const WCHAR *query, WCHAR **ids, WCHAR **error)                     \
    {                                                                                                              \
        if (error)                                                                                                 \
            *error = NULL;                                                                                         \
        return list_objects("HcnEnumerate" #plural, query, ids);                                                   \
    }                                                                                                              \
    EXPORT HRESULT WINAPI HcnOpen##singular(const GUID *id, void **handle, WCHAR **error)                          \
    {                                                                                                              \
        if (error)                                                                                                 \
            *error = NULL;                                                                                         \
        return open_object("HcnOpen" #singular, id, handle);                                                       \
    }                                                                                                              \
    EXPORT HRESULT WINAPI HcnQuery##singular##Properties(void *handle, const WCHAR *query, WCHAR **properties, WCHAR **error) \
    {                                                                                                              \
        (void)query;                                                                                               \
        if (error)                                                                                                 \
            *error = NULL;                                                                                         \
        return query_object("HcnQuery" #singular "Properties", handle, properties);                                \
    }                                                                                                              \
    EXPORT HRESULT WINAPI HcnDelete##singular(const GUID *id, WCHAR **error)                                       \
    {                                                                                                              \
        if (error)                                                                                                 \
            *error = NULL;                                                                                         \
        return delete_object("HcnDelete" #singular, id);                                                           \
    }                                                                                                              \
    EXPORT HRESULT WINAPI HcnClose##singular(void *handle)                                                         \
    {                                                                                                              \
        return close_object(handle);                                                                               \
    }

OBJECT(Networks, Network)
OBJECT(Endpoints, Endpoint)
OBJECT(LoadBalancers, LoadBalancer)

/* The service chooses the identifier of the new object. */
EXPORT HRESULT WINAPI HcnCreateEndpoint(void *network, const GUID *id, const WCHAR *settings, void **handle, WCHAR **error)
{
    (void)id;
    if (error)
        *error = NULL;
    return create_object("HcnCreateEndpoint", network, settings, handle, error);
}

EXPORT HRESULT WINAPI HcnCreateLoadBalancer(const GUID *id, const WCHAR *settings, void **handle, WCHAR **error)
{
    if (error)
        *error = NULL;
    return create_object("HcnCreateLoadBalancer", id, settings, handle, error);
}

EXPORT HRESULT WINAPI HcnCreateNetwork(const GUID *id, const WCHAR *settings, void **handle, WCHAR **error)
{
    if (error)
        *error = NULL;
    return create_object("HcnCreateNetwork", id, settings, handle, error);
}

EXPORT HRESULT WINAPI HcnModifyNetwork(void *handle, const WCHAR *settings, WCHAR **error)
{
    if (error)
        *error = NULL;
    return modify_object("HcnModifyNetwork", handle, settings, error);
}
