<powershell>
# Makes this host a Windows node. It may run at every boot, because it changes only what differs.
# C:\Windows\Logs\windows-user-data.log lists what it did and what failed. The log contains no secret.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$log = Join-Path $env:SystemRoot 'Logs\windows-user-data.log'
$ssh = Join-Path $env:ProgramData 'ssh'
$restart = $false
$failed = 0

function Write-Log([string] $Text) {
    Add-Content -LiteralPath $log -Encoding Ascii -ErrorAction SilentlyContinue -Value ('{0:u} {1}' -f [DateTime]::UtcNow, $Text)
}

# If a step fails, the next step still runs.
function Invoke-Step([string] $Name, [scriptblock] $Step) {
    try {
        & $Step | Out-Null
        Write-Log ('{0}: as it must be' -f $Name)
    } catch {
        $script:failed++
        Write-Log ('{0}: {1}' -f $Name, $_.Exception.Message)
    }
}

# Use the SIDs of Administrators and SYSTEM, because their names depend on the language of Windows.
function New-Folder([string] $Path, [string] $Others) {
    if (Test-Path -LiteralPath $Path) { return }
    $rights = New-Object System.Security.AccessControl.DirectorySecurity
    $rights.SetSecurityDescriptorSddlForm('O:S-1-5-32-544D:PAI(A;OICI;FA;;;S-1-5-32-544)(A;OICI;FA;;;S-1-5-18)' + $Others)
    New-Item -ItemType Directory -Path $Path | Out-Null
    Set-Acl -LiteralPath $Path -AclObject $rights
}

# Set the rights before the content is written.
function Set-PrivateFile([string] $Path, [string] $Text) {
    $rights = New-Object System.Security.AccessControl.FileSecurity
    $rights.SetSecurityDescriptorSddlForm('O:S-1-5-32-544D:PAI(A;;FA;;;S-1-5-32-544)(A;;FA;;;S-1-5-18)')
    if (-not (Test-Path -LiteralPath $Path) -or [IO.File]::ReadAllText($Path) -cne $Text) {
        $new = $Path + '.new'
        New-Item -ItemType File -Path $new -Force | Out-Null
        Set-Acl -LiteralPath $new -AclObject $rights
        [IO.File]::WriteAllText($new, $Text)
        Move-Item -LiteralPath $new -Destination $Path -Force
    }
    Set-Acl -LiteralPath $Path -AclObject $rights
}

# Find the rule by its name, so that a second run doesn't create a second rule.
function Set-Rule([string] $Name, [string] $Title, [int] $Port, [string] $Edge) {
    $rule = @{
        Direction = 'Inbound'; Action = 'Allow'; Enabled = 'True'; Profile = 'Any'; Protocol = 'TCP'; LocalPort = $Port; EdgeTraversalPolicy = $Edge
    }
    if (Get-NetFirewallRule -Name $Name -ErrorAction SilentlyContinue) {
        Set-NetFirewallRule -Name $Name @rule
    } else {
        New-NetFirewallRule -Name $Name -DisplayName $Title @rule
    }
}

if ((Test-Path -LiteralPath $log) -and (Get-Item -LiteralPath $log).Length -gt 1000000) { Remove-Item -LiteralPath $log }

Invoke-Step 'firewall' {
    Set-Rule 'ContainerLogsPort' 'ContainerLogsPort' 10250 'Allow'
    Set-Rule 'WindowsExporter' 'WindowsExporter' 9182 'Allow'
}

Invoke-Step 'join' {
    if (Get-Service -Name 'windows-instance-attend' -ErrorAction SilentlyContinue) { return }
& {
# Makes this Windows host a node. It downloads the daemon's program from the API server, checks it, and starts it.
# You may run it again.
$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'
$join = '{"program":{"sha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":7},"url":"https://api.example.com:6443/x","attendance":{"apiServer":"https://api.example.com:6443","ca":"CERTIFICATE","payload":"/x","namespace":"wmco","uid":"","token":"TOKEN"}}' | ConvertFrom-Json
$folder = Join-Path $env:USERPROFILE '.wmco'
$program = Join-Path $folder 'wicd-aaaaaaaaaaaaaaaa.exe'
$ca = Join-Path $folder 'ca.crt'
$part = $program + '.part'
New-Item -ItemType Directory -Force -Path $folder | Out-Null
if (-not (Test-Path -LiteralPath $program)) {
    Set-Content -LiteralPath $ca -Encoding Ascii -Value $join.attendance.ca
    Write-Output 'Downloading the daemon from the API server.'
    $header = 'header = "Authorization: Bearer ' + $join.attendance.token + '"'
    foreach ($try in 1..20) {
        $header | curl.exe -q --config - --fail --silent --show-error --ssl-no-revoke --cacert $ca --connect-timeout 20 --speed-limit 1000 --speed-time 60 --continue-at - --output $part --url 'https://api.example.com:6443/x'
        if ($LASTEXITCODE -notin 6, 7, 18, 22, 28, 35, 52, 55, 56) { break }
        Start-Sleep -Seconds 10
    }
    if ($LASTEXITCODE -ne 0) { throw "The download failed (curl error $LASTEXITCODE). Check that this host reaches $($join.attendance.apiServer), that no proxy replaces its certificate, that the token has not expired, and that curl.exe is version 7.60 or later." }
    Move-Item -LiteralPath $part -Destination $program
}
if ((Get-FileHash -LiteralPath $program -Algorithm SHA256).Hash -ne $join.program.sha256) {
    Remove-Item -LiteralPath $program
    throw 'The downloaded program is not the expected one. Run the command again.'
}
$join.attendance | ConvertTo-Json -Compress | & $program attend
if ($LASTEXITCODE -ne 0) { throw "The host did not join (exit code $LASTEXITCODE). See the message above." }
}
}

# Pod networks remove the route to the metadata service. This task restores the route. This step is the last one, because an upgrade of EC2Launch may
# end the EC2Launch that runs this script.
Invoke-Step 'EC2Launch' {
    $launch = Join-Path $env:ProgramFiles 'Amazon\EC2Launch\EC2Launch.exe'
    $version = [version] '0.0'
    if (Test-Path -LiteralPath $launch) {
        $found = [regex]::Match((& $launch version | Out-String), '\d+(\.\d+){1,3}')
        if ($found.Success) { $version = [version] $found.Value }
    }
    if ($version -lt [version] '2.0.2107') {
        [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
        $folder = Join-Path $env:SystemRoot ('Temp\' + [guid]::NewGuid())
        New-Folder $folder ''
        try {
            $installer = Join-Path $folder 'AmazonEC2Launch.msi'
            Invoke-WebRequest -UseBasicParsing -Uri 'https://s3.amazonaws.com/amazon-ec2launch-v2/windows/amd64/2.0.2107/AmazonEC2Launch.msi' -OutFile $installer
            if ((Get-FileHash -LiteralPath $installer -Algorithm SHA256).Hash -ne '459CB9533A58D9D8DBCE31C5F4D3DE4C5DDD15B99CC5D2FC8ADD3F0750A1BF5F') { throw 'the installer that was downloaded is not the expected one' }
            $setup = Start-Process -FilePath 'msiexec.exe' -ArgumentList '/i', $installer, '/qn', '/norestart' -Wait -PassThru
            if (0, 3010 -notcontains $setup.ExitCode) { throw ('the installer ended with {0}' -f $setup.ExitCode) }
        } finally {
            Remove-Item -LiteralPath $folder -Recurse -Force
        }
    }
    & $launch run-task add-routes --persistent
    if ($LASTEXITCODE -ne 0) { throw ('add-routes ended with {0}' -f $LASTEXITCODE) }
}

if ($failed -gt 0) { exit 1 }
</powershell>
<persist>true</persist>
